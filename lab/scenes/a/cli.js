const {spawn}=require('child_process'),http=require('http');process.title='webcli';
const s=spawn(process.execPath,[__dirname+'/srv.js']);const get=p=>new Promise(k=>http.get({port:8931,host:'127.0.0.1',path:p},r=>{r.resume();r.on('end',k)}));
s.stdout.once('data',async()=>{for(let i=0;i<15;i++){await get('/a');await new Promise(k=>setTimeout(k,8))}await get('/slow');for(let i=0;i<5;i++)await get('/a');s.kill();process.exit(0)});
