"""The options and help of commands, and what they refuse at once.

Nothing here imports the library, which takes seconds: a wrong option, a file that is not there or a folder that is
occupied is reported in a fraction of one. The work of a command is in the file of the same name in `dwac.cli`.
"""
