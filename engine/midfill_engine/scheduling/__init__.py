"""Which fill runs next, and which forward passes go together. Knows neither tensors nor what a fill is made of."""
