"""Tools that are run from a checkout: lowest versions, the site and its pictures."""
