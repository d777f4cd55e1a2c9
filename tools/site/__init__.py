"""Hooks of the site: links to source files, the page of commands, notebooks."""
