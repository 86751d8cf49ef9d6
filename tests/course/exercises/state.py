"""Exercises of notebook 06."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Exercise, ch

NAME = "06_state"
POP = "self.totals.pop(customer) if end else self.totals[customer]"
ADD = "        self.totals[customer] += price\n"
BEGIN = "        if start:\n            self.totals[customer] = 0\n"
LAST = "            if number == len(prices) - 1:\n                flags |= END\n"
BEFORE = ("state-01", "state-08", "state-09")
OWN = "customer = uuid.uuid4().int >> 64"

EXERCISES = {
    "forget at the end": Exercise(
        NAME, BEFORE, "state-20", "state-18",
        ch(f"total = {POP}\n", "total = self.totals[customer]\n        if end:\n            del self.totals[customer]\n",
           BEGIN + ADD, "        self.totals[customer] = price if start else self.totals[customer] + price\n"),
        (
            (ch(POP, "self.totals[customer]"), "Response 3: got 2, expected 1"),
            (ch(POP, "self.totals.pop(customer)"), "KeyError"),
            (ch(POP, "self.totals[customer]", ADD, "        if end:\n            del self.totals[customer]\n" + ADD), "KeyError"),
            (ch(POP, "self.totals[customer]\n        if end:\n            self.totals.clear()"), "KeyError"),
            (ch(POP, "self.totals.pop(customer, 0) if start else self.totals[customer]"), "KeyError"),
            (ch(POP, "self.totals[customer]\n        if end:\n            self.totals[customer] = 0"), "got 2, expected 1"),
            (ch(BEGIN, "        self.totals[customer] = 0\n"), "Response 3: got 10, expected 15"),
            (ch("self.totals[customer] = 0", "self.totals = {customer: 0}"), "KeyError"),
            (ch(POP, POP + "\n        self.log = getattr(self, 'log', '') + '|' * end"), "in till.log"),
            (ch(POP, "(self.totals[customer], self.totals.pop(customer) if end else 0)[0]", BEGIN, "        self.totals.setdefault(customer, 0)\n", "CHECK:7:start,end", "7:end"),
             "must specify the START flag"),
            (ch("np.int32", "np.int64"), "TOTAL is INT64, expected INT32"),
        ),
    ),
    "a caller that sends a sequence": Exercise(
        NAME, (*BEFORE, "state-20"), "state-40", "state-38",
        ch(OWN, "customer = id(request)", LAST, "            flags |= END * (number + 1 == len(prices))\n"),
        (
            (ch("            correlation_id=customer,\n            flags=flags,\n", ""), "non-empty correlation ID"),
            (ch("            correlation_id=customer,\n", ""), "non-empty correlation ID"),
            (ch("            flags=flags,\n", ""), "must specify the START flag"),
            (ch("START if number == 0 else 0", "START"), "began it again"),
            (ch("START if number == 0 else 0", "START | END", '"SUM", total', '"SUM", np.array([prices.sum()], np.int32)'), "Complete sequences should be == 4. Send START with a sequence's"),
            (ch("START if number == 0 else 0", "START if price == prices[0] else 0"), "for other inputs, SUM"),
            (ch(LAST, ""), "4 sequences had no END"),
            (ch(LAST, "            flags |= END\n"), "must specify the START flag"),
            (ch(OWN, "customer = 7"), "Several callers use sequence 7 at the same time"),
            (ch(OWN, "customer = 0"), "non-empty correlation ID"),
            (ch("len(prices) - 1", "len(prices)"), "4 sequences had no END"),
            (ch("number == len(prices) - 1", "number == 2"), "1 sequence had no END"),
            (ch("for number, price in enumerate(prices):", "for number, price in [(0, prices.sum())]:", "number == len(prices) - 1", "True", '"PRICE", np', '"PRICE", 0 * np'),
             "got 0, expected 6"),
            (ch("for number, price in enumerate(prices):", "for number, price in enumerate(prices[:1]):"), "SUM"),
            (ch("for number, price in enumerate(prices):", "for number, price in [(0, prices.sum())]:", "number == len(prices) - 1", "True"),
             "Send more requests to till"),
        ),
    ),
}  # fmt: skip
