(* SPDX-License-Identifier: MIT *)
let truth line =
  let file =
    open_out_gen [Open_append; Open_creat] 0o600 (Sys.getenv "LAB_TRUTH") in
  output_string file (line ^ "\n");
  close_out file

let role name =
  match String.split_on_char '/' (Unix.readlink "/proc/thread-self") with
  | [pid; _; tid] -> truth (Printf.sprintf "role %s %s %s" name pid tid)
  | _ -> assert false

let finished = ref false

let serve socket =
  role "setter";
  ignore (Unix.accept socket);
  finished := true

let () =
  let socket = Unix.socket Unix.PF_INET Unix.SOCK_STREAM 0 in
  Unix.bind socket (Unix.ADDR_INET (Unix.inet_addr_loopback, 0));
  Unix.listen socket 1;
  ignore (Thread.create serve socket);
  Thread.delay 0.2;
  Gc.compact ();
  role "waiter";
  (* A reference read as a number is its address without the lowest bit. *)
  let address = (Obj.magic finished : int) * 2 in
  truth (Printf.sprintf "word finished 0x%x 8" address);
  truth "ready";
  while not !finished do
    Thread.yield ()
  done;
  Thread.delay 5.0
