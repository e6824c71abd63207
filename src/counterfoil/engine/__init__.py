"""The only room that acts: it performs what the core decides, through the ports."""
