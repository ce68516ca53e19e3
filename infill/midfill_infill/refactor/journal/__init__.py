"""What a run is and where it is kept: its rows, its file, its place and its lock. Knows no engine."""
