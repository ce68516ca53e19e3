"""Prices of a small shop, in cents."""


def with_tax(price, rate):
    """The price with tax."""
    return round(price * (1 + rate))


def discount(price, rate):
    """The price after a discount."""
    ...


def cheapest(prices):
    """The lowest price, or None."""
    return min(prices, default=None)
