"""Shape annotations of the package are checked while the tests run."""

from jaxtyping import install_import_hook

# This has to come before the first import of the package.
install_import_hook("attention_lab", "beartype.beartype")
