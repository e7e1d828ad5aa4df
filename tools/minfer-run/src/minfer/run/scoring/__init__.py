"""Scoring text: perplexity in windows, and how far two models' distributions are apart."""
