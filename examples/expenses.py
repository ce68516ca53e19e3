"""Reads a bank's CSV export and sums it up: `python expenses.py export.csv`."""

import csv
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

CATEGORIES = {
    "bakery": "food",
    "supermarket": "food",
    "restaurant": "food",
    "railway": "travel",
    "hotel": "travel",
    "landlord": "rent",
}


@dataclass(frozen=True)
class Expense:
    day: date
    payee: str
    amount: Decimal

    @property
    def category(self) -> str:
        words = self.payee.lower().split()
        return next((CATEGORIES[word] for word in words if word in CATEGORIES), "other")


def read_expenses(path: Path) -> list[Expense]:
    """The rows with a negative amount; income is left out."""
    expenses = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter=";"):
            amount = Decimal(row["amount"].replace(",", "."))
            if amount < 0:
                expenses.append(Expense(date.fromisoformat(row["date"]), row["payee"].strip(), -amount))
    return expenses


def sum_by_category(expenses: list[Expense]) -> dict[str, Decimal]:
    """What was spent on each category."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for expense in expenses:
        sums[expense.category] += expense.amount
    return dict(sums)


def sum_by_payee(expenses: list[Expense]) -> dict[str, Decimal]:
    """What was spent at each payee."""
    ...


def largest(expenses: list[Expense], count: int = 5) -> list[Expense]:
    """The most expensive ones, the dearest first."""
    return sorted(expenses, key=lambda expense: expense.amount, reverse=True)[:count]


def print_sums(title: str, sums: dict[str, Decimal]) -> None:
    print(title)
    for name, amount in sorted(sums.items(), key=lambda item: item[1], reverse=True):
        print(f"  {name:<24} {amount:>10.2f}")


def main() -> None:
    expenses = read_expenses(Path(sys.argv[1]))
    print_sums("By category", sum_by_category(expenses))
    print_sums("By payee", sum_by_payee(expenses))
    for expense in largest(expenses):
        print(f"{expense.day}  {expense.payee:<24} {expense.amount:>10.2f}")


if __name__ == "__main__":
    main()
