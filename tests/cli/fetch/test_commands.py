"""minfer-fetch as a user meets it: exit status, stdout and stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gguf_bytes import *  # noqa: F403
