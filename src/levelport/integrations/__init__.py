"""levelport inside other libraries: one thin module each, to be imported where its framework is installed.

All stand on :class:`levelport.Teleporter`, which never steps. A loop of one's own (plain torch, Fabric, Accelerate)
needs nothing from here: ``Teleporter(optimizer, Every(50)).maybe(loss)`` before every step.
"""
