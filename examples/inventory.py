"""A small stock ledger: an example to fill. Try `midfill fill examples/inventory.py --function remaining`."""


class Inventory:
    def __init__(self, name, capacity):
        self.name = name
        self.capacity = capacity
        self.items = {}

    def add(self, key, amount):
        """Add an amount of an item."""
        self.items[key] = self.items.get(key, 0) + amount

    def remove(self, key, amount):
        """Remove an amount of an item."""
        self.items[key] = self.items.get(key, 0) - amount

    def count(self, key):
        """Return the amount of an item."""
        return self.items.get(key, 0)

    def total(self):
        """Return the amount of all items."""
        return sum(self.items.values())

    def remaining(self):
        """Return how much more fits."""
        ...

    def is_empty(self):
        """Return whether there are no items."""
        return self.total() == 0

    def is_full(self):
        """Return whether nothing more fits."""
        return self.remaining() == 0
