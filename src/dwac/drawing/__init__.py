"""How dwac draws: one style for every picture, and the picture of a single explanation. Internal.

It stands low in the house, so that the paper, the report and `Explanation.plot` can all draw with it. Needs the extra
`dwac[report]`, and asks for it only when something is drawn.
"""
