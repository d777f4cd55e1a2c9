"""Drawing: one style for all pictures, and the picture of a single explanation. Internal.

A low layer, so that the paper, the report and `Explanation.plot` can all use it. Drawing needs the extra
`dwac[report]`; importing does not.
"""
