# SPDX-License-Identifier: MIT
from dpkt.sctp import SCTP
from lab_truth import ready, role

PACKET = bytes.fromhex("b75126ab0020f3e832bdabae") + bytes(20)

role("waiter")
ready()
print(SCTP(PACKET))
