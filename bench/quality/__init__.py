"""Measures how well a served model fills gaps: suites, length conditions, a sandbox, floors, intervals, calibration."""
