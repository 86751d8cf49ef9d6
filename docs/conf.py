"""Sphinx's configuration of the manual: `make docs`. The pages that are written at the build come from `_ext/`."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

project = "bls_notebook"
author = "bls_notebook contributors"
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_codeautolink",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxext.opengraph",
    "sources",
    "pictures",
    "plain_text",
    "search",
]
root_doc = "index"
exclude_patterns = ["_build"]
nitpicky = True
smartquotes = False  # of two hyphens of an option it makes a dash
# Types in signatures and docstrings are Python's and Triton's; only links that somebody wrote have to resolve.
nitpick_ignore_regex = [("py:.*", ".*")]

# The notebooks are committed with their outputs; the code of the other pages runs in the tests.
nb_execution_mode = "off"
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "image/png", 10), ("html", "text/plain", 20)]
nb_merge_streams = True
myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 3
# A diagram for JupyterLab, whose text is shown; and functions in the settings.
suppress_warnings = ["mystnb.unknown_mime_type", "config.cache"]
codeautolink_custom_blocks = dict.fromkeys(["python", "ipython", "ipython3"], "sources.python_of")

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autosummary_generate = False
numpydoc_show_class_members = False

html_theme = "furo"
html_title = "bls_notebook"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["manual.css"]
html_js_files = ["manual.js"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_exclude = ".linenos, .gp, .go"
# Nothing on a page needs a network: no mathematics, and no pictures for other sites.
myst_update_mathjax = False
ogp_site_url = ""
ogp_enable_meta_description = True
ogp_social_cards = {"enable": False}
