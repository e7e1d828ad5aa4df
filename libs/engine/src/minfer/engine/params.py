"""GenerationParams: every knob of one generation, once.

The command line, HTTP and profiles read the fields of this class, their bounds and help texts; nothing
else lists them.
"""
