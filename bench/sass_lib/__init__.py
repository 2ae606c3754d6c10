"""A census of SASS: what `nvdisasm` prints, read into loops, roles and pipes.

listing.py   text of nvdisasm -> instructions of each kernel, resource metadata
cfg.py       basic blocks, dominators, natural loops
straight.py  the straight path of one loop iteration (spin-wait side paths set apart)
pipes.py     opcode -> pipe
census.py    loops -> roles -> counts; the report of one kernel
tools.py     locating and running nvdisasm
report.py    tables and JSON
"""
