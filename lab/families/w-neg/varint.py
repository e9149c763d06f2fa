# Encodes and decodes messages, as generated code of protocol buffers does.
def encode(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
def decode(data):
    at = 0
    fields = {}
    while at < len(data):
        shift = key = 0
        while True:
            byte = data[at]; at += 1
            key |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                break
        shift = value = 0
        while True:
            byte = data[at]; at += 1
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                break
        fields.setdefault(key >> 3, []).append(value)
    return fields
data = b"".join(encode(n % 15 + 1 << 3) + encode(n * n * 977) for n in range(20000))
count = 0
while True:
    count += len(decode(data))
