"""The command line, a module for each group of commands: `add(commands)` describes them and says what runs them."""
