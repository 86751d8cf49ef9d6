"""Records of tests: drills and replays."""
