"""The transformer, its operators and the choice of tokens. `families/` says what differs between models."""
