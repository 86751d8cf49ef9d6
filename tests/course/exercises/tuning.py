"""Exercises of notebook 09."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Exercise, ch

NAME = "09_tuning"
BEFORE = ("tuning-01", "tuning-03", "tuning-04", "tuning-05")
CLEAN, READ = 'configure("clean", 4)', 'configure("read", 1, 5_000)'
PAGE8, PAGE4 = 'configure("page", 8)', 'configure("page", 4)'
ONE_ROW = """config = repo.config("read")
config.max_batch_size = 1
config.dynamic_batching.Clear()
repo.load("read", config=config)"""

EXERCISES = {
    "move the bottleneck": Exercise(
        NAME, BEFORE, "tuning-16", "tuning-14",
        ch("1, 5_000", "1, 15_000", PAGE8, 'repo.load("page", config={**MESSAGE, "instance_group": [{"count": 8}]})', "# A solution",
           "from google.protobuf.json_format import MessageToDict\n\nMESSAGE = MessageToDict(repo.config('page'), preserving_proto_field_name=True)"),
        (
            (ch(CLEAN, 'configure("clean", 1)', READ, 'configure("read", 1)'), "They were sent together but waited in a queue"),
            (ch(READ, 'configure("read", 1)'), "without `dynamic_batching` each request runs alone"),
            (ch(CLEAN, 'configure("clean", 1)'), "at most 1 request of clean at work"),
            (ch(CLEAN, 'configure("clean", 2)'), "at most 2 requests of clean at work"),
            (ch(PAGE8, 'configure("page", 7)', CLEAN, 'configure("clean", 5)'), "is 7, expected 8"),
            (ch(CLEAN, 'configure("clean", 8)'), "instances() is 17, expected 13"),
            (ch(READ, 'configure("read", 8)'), "instances() is 20, expected 13"),
            (ch(READ, 'configure("read", 4)', CLEAN, 'configure("clean", 1)'), "at most 1 request of clean at work"),
            (ch(PAGE8, 'configure("page", 1)'), "page executed 1 request at a time"),
            (ch(PAGE8, 'configure("page", 3)'), "page executed 3 requests at a time"),
            (ch("CHECK:-n 8 --async", "-n 8"), "At most 1 request to page at a time: send 4 at once"),
            (ch("CHECK:-n 8", "-n 2"), "in all: send 4"),
            (ch(READ, ONE_ROW), "`max_batch_size` of read is 1"),
        ),
    ),
    "nine instances": Exercise(
        NAME, BEFORE, "tuning-31", "tuning-29",
        ch(PAGE4, 'configure("page", 5)', CLEAN, 'configure("clean", 3)'),
        (
            (ch(PAGE4, 'configure("page", 7)', CLEAN, 'configure("clean", 1)'), "`clean`"),
            (ch(PAGE4, 'configure("page", 1)', CLEAN, 'configure("clean", 7)'), "in front of page: 8 requests"),
            (ch(READ, 'configure("read", 1)'), "for `read`"),
            (ch(PAGE4, 'configure("page", 2)', CLEAN, 'configure("clean", 6)'), "for `page`"),
            (ch(PAGE4, 'configure("page", 8)', CLEAN, 'configure("clean", 8)'), "instances() is 17, expected 9"),
            (ch(PAGE4, 'configure("page", 1)', CLEAN, 'configure("clean", 1)'), "instances() is 3, expected 9"),
            (ch(READ, 'configure("read", 1, 200_000)'), "The longest queue is in front of read"),
            (ch("CHECK:-n 8", "-n 1"), "speedup"),
        ),
    ),
}  # fmt: skip
