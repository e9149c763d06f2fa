(* SPDX-License-Identifier: MIT *)
(* The main thread waits for what another writes. Each line on stdin makes that write 3. *)
let state = ref 0
let cells = Array.make 16 0
let table : (string, int) Hashtbl.t = Hashtbl.create 8
let rec until test pause = if not (test ()) then (pause (); until test pause)

let () =
  Hashtbl.replace table "ready" 0;
  let writes () =
    try
      while true do
        ignore (input_line stdin);
        state := 3;
        cells.(5) <- 3;
        Hashtbl.replace table "ready" 3
      done
    with End_of_file -> ()
  in
  ignore (Thread.create writes ());
  match Sys.argv.(1) with
  | "ref" -> until (fun () -> !state = 7) (fun () -> ())
  | "cells" -> until (fun () -> cells.(5) = 7) Thread.yield
  | "sleep" -> until (fun () -> !state = 7) (fun () -> Unix.sleepf 0.001)
  | "table" -> until (fun () -> Hashtbl.find table "ready" = 7) Thread.yield
  | "file" -> until (fun () -> Sys.file_exists "/tmp/never") (fun () -> ())
  | "child" ->
    (match Unix.fork () with
     | 0 -> Unix.sleep 100
     | child -> until (fun () -> fst (Unix.waitpid [ Unix.WNOHANG ] child) <> 0) (fun () -> ()))
  | _ -> ()
