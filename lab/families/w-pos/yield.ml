(* The main thread yields until a field becomes 7; each line on stdin makes it 3. *)
type job = { mutable state : int; name : string }
let job = { state = 0; name = "a" }
let rec wait () = if job.state <> 7 then (Thread.yield (); wait ())
let () = ignore (Thread.create (fun () -> try while true do ignore (input_line stdin); job.state <- 3 done with End_of_file -> ()) ()); wait (); print_string job.name
