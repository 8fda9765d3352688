"""Reads IPv4 packets with RoCEv2 in them, one a line in hexadecimal, and prints what scapy says of each: the fields of the
BTH, and the ICRC that it computes itself."""

import sys

from scapy.compat import raw
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP

FIELDS = ["opcode", "solicited", "migreq", "padcount", "pkey", "fecn", "becn", "dqpn", "ackreq", "psn"]

for line in sys.stdin:
    packet = IP(bytes.fromhex(line))
    bth = packet[BTH]
    bth.icrc = None
    print(*(getattr(bth, field) for field in FIELDS), raw(packet)[-4:].hex())
