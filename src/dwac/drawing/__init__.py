"""How dwac draws: one style for every picture, and the picture of a single explanation. Internal.

It is on a low layer, so that the paper, the report and `Explanation.plot` can all use it. It needs the extra
`dwac[report]`, but only when something is drawn.
"""
