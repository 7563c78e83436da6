"""One process, one device: what the others are compared with."""
import torch

import common
import net

chosen = common.options()
where = common.device(chosen)
model = net.whole(chosen.model).to(where)
optimizer = torch.optim.Adam(model.parameters(), lr=chosen.lr)
data = common.Data(chosen)
meter = common.train(data, 0, 1, common.usual_step(model, optimizer, where))
accuracy = data.accuracy(lambda pictures: model(pictures.to(where)))
common.report("single process", 1, 1, where, meter.rate(), common.memory(), accuracy)
