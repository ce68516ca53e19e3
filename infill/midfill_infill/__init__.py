"""Finds holes, chooses their context, asks the engine, splices the fills. Bytes in, bytes out; knows no tensor."""
