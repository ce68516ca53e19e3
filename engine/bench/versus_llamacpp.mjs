// Times llama.cpp on a context and then tokens one by one, in processor seconds of this process; for versus_llamacpp.py.
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [file, context, tokens] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.disabled, maxThreads: 1});
const model = await llama.loadModel({modelPath: file, useMmap: true});
const room = await model.createContext({contextSize: context + tokens + 8, batchSize: 512, threads: 1});
const sequence = room.getSequence();
const spent = () => { const {user, system} = process.cpuUsage(); return (user + system) / 1e6; };
const ids = (start, count) => Array.from({length: count}, (_, index) => ((start + index) * 7919) % 100000 + 300);

let before = spent();
await sequence.evaluateWithoutGeneratingNewTokens(ids(0, context));
const cold = spent() - before;
before = spent();
for (let index = 0; index < tokens; index++) {
    for await (const _ of sequence.evaluate(ids(context + index, 1), {temperature: 0})) break;
}
console.log(JSON.stringify({context_cpu_s: cold, tokens_cpu_s: spent() - before}));
process.exit(0);
