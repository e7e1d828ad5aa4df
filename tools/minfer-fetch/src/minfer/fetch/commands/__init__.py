"""The commands of minfer-fetch, one file each; the table is in `minfer.fetch.cli`."""
