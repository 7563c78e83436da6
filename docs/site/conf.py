"""What Sphinx is told; `docs/site/build` copies this beside the pages that it has gathered."""

import os

project = "dtrun"
copyright = "the authors of dtrun"  # pylint: disable=redefined-builtin
version = release = os.environ.get("DTRUN_VERSION", "")
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
root_doc = "docs/index"
templates_path = ["_templates"]
html_theme = "furo"
html_title = "dtrun"
html_static_path = ["_static"]
html_css_files = ["dtrun.css"]
html_copy_source = False
html_show_sphinx = False
html_use_index = False
html_show_search_summary = False  # it would fetch pages, which a browser does not from a disk
# Everything that a page needs lies beside it: the site is read from a disk without a network.
html_theme_options = {"navigation_with_keys": True, "top_of_page_button": None}
pygments_style = "friendly"
pygments_dark_style = "monokai"
highlight_language = "text"  # what has no language is a program, a command line or both
smartquotes = False  # commands are in the text, too
# A link to a heading that Sphinx does not find is as wrong as one to a page.
nitpicky = True
