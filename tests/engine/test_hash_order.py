"""Orders that a program in C++ printed: libstdc++'s `std::unordered_map<std::string, int>`."""

from bls_notebook.engine.core.hash_order import hash_order


def test_names_are_in_the_order_of_the_hash_table() -> None:
    assert hash_order(["INPUT0", "INPUT1"]) == ["INPUT1", "INPUT0"]
    names = ["INPUT0", "INPUT1", "INPUT2", "x", "image", "mask"]  # x and INPUT0 share a bucket
    assert hash_order(names) == ["mask", "image", "INPUT2", "INPUT1", "x", "INPUT0"]
    numbered = [f"INPUT{number}" for number in range(16)]  # the table grows once
    assert [int(name[5:]) for name in hash_order(numbered)] == [15, 14, 13, 0, 1, 7, 2, 5, 9, 3, 4, 6, 10, 11, 8, 12]
