"""Shape annotations of the package are checked while the tests run."""

import os

# As the commands do: without it the tests crawl on a machine that does anything else besides.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from jaxtyping import install_import_hook

# This has to come before the first import of the package.
install_import_hook("attention_lab", "beartype.beartype")
