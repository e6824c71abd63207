"""One small program for each side: it knows its own engine, and the standard library.

A program is a process of its own environment. It takes commands as lines of JSON and
answers each with one; `talk` is what all of them share.
"""
