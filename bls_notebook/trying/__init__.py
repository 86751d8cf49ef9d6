"""`try_repository`: run any model repository; stubs replace models that cannot load, and a report says why."""
