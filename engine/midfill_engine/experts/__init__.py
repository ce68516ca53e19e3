"""Second opinions on masked positions. Knows ids; no request and no row."""
