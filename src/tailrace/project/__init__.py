"""The template of a user's project, and the code that creates one."""
