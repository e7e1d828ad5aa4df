"""Generated from proto/minfer/store/v1/store.proto by `make proto`."""
