"""The command line."""

COMMAND = "baru"  # as it is installed
COMPLETE = "_BARU_COMPLETE"  # the variable in which a shell asks to complete a word
