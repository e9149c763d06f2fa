(* SPDX-License-Identifier: MIT *)
let () =
  let file =
    open_out_gen [Open_append; Open_creat] 0o600 (Sys.getenv "LAB_TRUTH") in
  output_string file "ready\n";
  close_out file;
  let cells = Array.make 40000 0.0 in
  let table = Hashtbl.create 100 in
  let round = ref 0 in
  while true do
    incr round;
    for cell = 0 to 39999 do
      cells.(cell) <- cells.(cell * 7 mod 40000) *. 0.5 +. 1.0
    done;
    Hashtbl.replace table (string_of_int (!round mod 1000)) cells.(7)
  done
