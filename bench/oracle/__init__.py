"""Asks whether a right answer arrives as it was: the stand-in of an engine gives the true text of every hole."""
