// SPDX-License-Identifier: MIT
// The agent in the target: loads the native half and has Stalker follow threads. No code of this
// file runs in a followed thread.
'use strict';

// Declared here, not included: Gum's headers do not compile in every release, and these four never
// changed.
const NAMES = [
  'gum_stalker_iterator_next',
  'gum_stalker_iterator_keep',
  'gum_x86_writer_put_bytes',
  'gum_x86_writer_cur',
];
const COLLECT_EVERY_MS = 1000;
const FOLLOW_TURNS = 20;

let library = null;
let api = null;
let collected = Date.now();

function addressOf(name) {
  const bridge = new CModule(`extern void ${name} (void);
    void * find (void) { return (void *) ${name}; }`);
  return new NativeFunction(bridge.find, 'pointer', [])();
}

function load(path) {
  library = Module.load(path);
  const native = (name, result, args, options) =>
    new NativeFunction(library.getExportByName(name), result, args, options);
  api = {
    start: native('ff_start', 'pointer', ['pointer', 'pointer']),
    first: native('ff_first', 'pointer', ['uint32']),
    // It does not hold JavaScript's lock while it waits.
    arrival: native('ff_arrival', 'pointer', ['uint32', 'pointer'], { scheduling: 'cooperative' }),
    isInHand: native('ff_is_in_hand', 'uint32', ['pointer']),
    followed: native('ff_followed', 'void', ['pointer'], { scheduling: 'cooperative' }),
    missed: native('ff_missed', 'void', ['pointer'], { scheduling: 'cooperative' }),
    transform: library.getExportByName('ff_transform'),
  };
}

// Frida stops the thread to follow it, which does not always succeed at once. Frida then says
// nothing, or throws.
function follow(tid, data) {
  for (let turn = 0; turn < FOLLOW_TURNS; turn++) {
    try {
      Stalker.follow(tid, { transform: api.transform, data });
    } catch {
      // Frida did not stop the thread: try again.
    }
    if (api.isInHand(data)) return true;
    Thread.sleep(0.01);
  }
  return false;
}

const tidPlace = Memory.alloc(4);

function serveArrivals() {
  const data = api.arrival(20, tidPlace);
  if (!data.isNull()) {
    if (follow(tidPlace.readU32(), data)) api.followed(data);
    else api.missed(data);
  }
  if (Date.now() - collected > COLLECT_EVERY_MS) {
    collected = Date.now();
    Stalker.garbageCollect();
  }
  setImmediate(serveArrivals);
}

rpc.exports = {
  // The program waits in the library's gate, on the one thread it has.
  start(path, pool, tid) {
    load(path);
    const functions = Memory.alloc(NAMES.length * Process.pointerSize);
    NAMES.forEach((name, i) => {
      functions.add(i * Process.pointerSize).writePointer(addressOf(name));
    });
    const wrong = api.start(functions, Memory.allocUtf8String(pool));
    if (!wrong.isNull()) throw new Error(wrong.readCString());
    const data = api.first(tid);
    if (data.isNull()) throw new Error('there is no address space for its buffers');
    if (!follow(tid, data)) throw new Error('it could not stop the first thread');
    setImmediate(serveArrivals);
  },
};
