"""Measuring: benchmark runs, what verifying drafts costs, and the statistics of both."""
