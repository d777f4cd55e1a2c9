"""How many cases to draw, and from which seed, where Hypothesis does not draw them: more and others in `make fuzz`."""

import os

SEED = os.environ.get("FUZZ_SEED", "")
TIMES = 10 if SEED else 1
