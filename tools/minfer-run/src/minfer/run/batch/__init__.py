"""Many prompts in one run: `--prompts FILE --out FILE`."""
